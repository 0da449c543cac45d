/** Elements. Text is only set as text, so that no data can become markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an element.
 * @param {string} tag
 * @param {Record<string, any>} [properties] attributes; `on` has listeners, false and null are left out
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/**
 * Create an SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {any}
 */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/**
 * Replace the children of an element.
 * @param {Element} parent
 * @param {...(Node | string | null | undefined | false)} children
 */
export function put(parent, ...children) {
  parent.replaceChildren(...children.filter(isThere).map(asNode));
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter(isThere).map(asNode));
  return element;
}

const isThere = (child) => child !== null && child !== undefined && child !== false;
const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));
