import { h } from "./dom.js";
import { anchor, markdown } from "./markdown.js";

/** @typedef {{number?: number | string, title?: string, url?: string}} Source */

/** A link to a source, or only its text where there is no address to link to.
 * @param {Source} source @param {string} text @param {object} [props] */
const refer = ({ url = "" }, text, props) =>
  /^https?:\/\/\S+$/i.test(url) ? anchor(url, text, props) : h("span", {}, text);

/** Renders an answer: Markdown whose marks [1] link to the sources, which are listed below it.
 * @param {string} text @param {any} sources @param {string} label
 * @param {boolean} [isGrowing] its sources are yet to come, so any number may be one of them */
export function cited(text, sources, label, isGrowing) {
  /** @type {Source[]} */
  const list = Array.isArray(sources) ? sources : [];
  const blocks = markdown(text, (number) => {
    const source = list.find((one) => `${one.number}` === number) ?? (isGrowing && {});
    // Its title is in the list: here it would be read a second time.
    const props = { "aria-label": `${label}: ${number}` };
    return source ? h("sup", {}, refer(source, number, props)) : undefined;
  });
  if (list[0]) {
    const items = list.map((one) =>
      h("li", {}, `${one.number}`, refer(one, `${one.title || one.url}`, { dir: "auto" })),
    );
    blocks.push(h("ul", { class: "sources", "aria-label": label }, ...items));
  }
  return blocks;
}
