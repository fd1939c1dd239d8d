import { h } from "./dom.js";

/** @typedef {{id: string, tool: string, arguments: Record<string, unknown>}} Confirmation */

/** A value of JSON in words, of bounded length. @param {any} value @returns {string} */
const words = (value) =>
  (value && typeof value === "object"
    ? Object.entries(value)
        .map(([name, one]) => (Array.isArray(value) ? "" : name + ": ") + words(one))
        .join(", ")
    : `${value ?? "-"}`
  ).replace(/^([^]{400})[^]+/, "$1…");

/** Asks the visitor to decide about a call of a tool.
 * @param {Confirmation} call @param {Node[]} buttons @returns {HTMLElement} */
export const consent = (call, ...buttons) =>
  h(
    "fieldset",
    {},
    h("legend", {}, words(call.tool)),
    h(
      "dl",
      {},
      ...Object.entries(call.arguments ?? {}).flatMap(([name, value]) => [
        h("dt", {}, words(name.replace(/_/g, " "))),
        h("dd", { dir: "auto" }, words(value)),
      ]),
    ),
    h("div", { class: "chips" }, ...buttons),
  );
