/**
 * Creates an element with attributes and listeners (functions). Never parses HTML.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {(Node | string)[]} children
 * @returns {any} the caller knows the element's type by its tag
 */
export function h(tag, props = {}, ...children) {
  const node = /svg|path/.test(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const name in props) {
    if (typeof props[name] === "function") node.addEventListener(name, props[name]);
    else node.setAttribute(name, props[name]);
  }
  node.append(...children);
  return node;
}

/** An icon drawn with strokes on a 24 x 24 grid. @param {string} d */
export const icon = (d) =>
  h("svg", { viewBox: "0 0 24 24", "aria-hidden": true }, h("path", { d }));
