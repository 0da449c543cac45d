/** Keep text from becoming markup, but for the one that Leaflet parses to see whether the browser draws SVG. */

globalThis.trustedTypes?.createPolicy("default", { createHTML: (text) => (text === "<svg/>" ? text : null) });
