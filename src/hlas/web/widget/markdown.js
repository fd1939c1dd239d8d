import { h } from "./dom.js";

/** @param {string} href @param {string} text @param {object} [props] */
export const anchor = (href, text, props) =>
  h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow", ...props }, text);

const link = /^(https?:\/\/|mailto:|tel:)/i;

// Each alternative stops at a line end or at its own opening mark, so matching stays linear.
const marks =
  /`([^`\n]+)`|\*\*(?=\S)([^\n]+?)\*\*|\*(?=\S)([^*\n]+)\*|\[([^[\]\n]+)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>"'`*()[\]]*[^\s<>"'`*()[\].,:;!?])| ?\[(\d{1,3})\](?!\()/;

/** @typedef {(number: string) => Node | string | undefined} Cite makes the mark of a source */

/** @param {string} text @param {Cite} cite @returns {(Node | string)[]} */
function spans(text, cite) {
  const out = [];
  for (let found; (found = marks.exec(text)); text = text.slice(found.index + found[0].length)) {
    const [all, code, bold, italic, label, href, bare, number] = found;
    const target = href ?? bare;
    out.push(
      text.slice(0, found.index),
      code
        ? h("code", {}, code)
        : bold
          ? h("strong", {}, ...spans(bold, cite))
          : target
            ? link.test(target)
              ? anchor(target, label ?? target)
              : all
            : number
              ? (cite(number) ?? all)
              : h("em", {}, ...spans(`${italic}`, cite)),
    );
  }
  return [...out, text];
}

/** Renders a safe subset of Markdown as nodes, without HTML.
 * @param {string} text @param {Cite} [cite] */
export function markdown(text, cite = () => undefined) {
  /** @type {Node[]} */
  const blocks = [];
  text.split(/^```.*\n?/m).forEach((part, index) => {
    if (index % 2) blocks.push(h("pre", {}, h("code", {}, part.trimEnd())));
    /** @type {any} */
    let block;
    for (const line of index % 2 ? [] : part.split("\n")) {
      const item = /^\s*(?:[-*•]|(\d+)[.)])\s+(.*)/.exec(line);
      const tag = item ? (item[1] ? "ol" : "ul") : "p";
      const content = spans(item ? `${item[2]}` : line.replace(/^#+\s/, ""), cite);
      if (!line.trim()) block = undefined;
      else {
        if (block?.localName !== tag) {
          block = h(tag, item?.[1] ? { start: item[1] } : {});
          blocks.push(block);
        } else if (!item) block.append(h("br"));
        block.append(...(item ? [h("li", {}, ...content)] : content));
      }
    }
  });
  return blocks;
}
