/** Leaflet, which is a script and no module. */

import "../trusted_types.js";
import "../leaflet/leaflet.js";

export const L = globalThis.L;
