import { speak, texts } from "./texts.js";

/**
 * @typedef {object} Config
 * @property {string} title
 * @property {string} subtitle
 * @property {string} greeting
 * @property {string} placeholder
 * @property {string} launcher
 * @property {string} language
 * @property {string} color
 * @property {string} color_text
 * @property {string} position
 * @property {string} theme
 * @property {string} z_index
 * @property {string} notice
 * @property {string} privacy_url
 * @property {string[]} suggestions
 */

/** The options and the pattern that each value must match. @type {Record<string, RegExp>} */
const rules = {
  title: /^.{1,60}$/,
  subtitle: /^.{1,80}$/,
  greeting: /^[^]{1,500}$/,
  placeholder: /^.{1,80}$/,
  launcher: /^.{1,24}$/,
  language: /^\w\w/,
  color: /^#[\da-f]{6}$/i,
  color_text: /^#[\da-f]{6}$/i,
  position: /^(left|right)$/,
  theme: /^(auto|light|dark)$/,
  notice: /^.{1,120}$/,
  z_index: /^\d{1,9}$/,
  privacy_url: /^https?:\/\/\S+$/i,
};

/** The page's data- attributes override the tenant's settings, of which those for the language
 * override the others; invalid values are ignored. Also chooses the language.
 * @param {HTMLElement} host @param {any} remote @returns {Config} with the widget's own texts, or empty ones, for what is not given */
export function readConfig(host, remote) {
  /** @type {any} */
  let own;
  const read = (/** @type {string} */ name) =>
    [host.getAttribute("data-" + name.replace("_", "-")), own?.[name], remote?.[name]].find(
      (value) => /string|number/.test(typeof value) && rules[name]?.test(value),
    );
  /** @type {any} */
  const config = {};
  speak(read("language"), document.documentElement.lang, navigator.language);
  own = remote?.texts?.[texts.language];
  for (const name in rules) config[name] = read(name) ?? texts[/** @type {"title"} */ (name)] ?? "";
  const asked = host.dataset.suggestions?.split("|") ?? own?.suggestions ?? remote?.suggestions;
  config.suggestions = (Array.isArray(asked) ? asked : [])
    .filter((text) => typeof text === "string" && /^.{1,80}$/.test(text))
    .slice(0, 6);
  return config;
}

/** @param {string} hex */
function luminance(hex) {
  const part = (/** @type {number} */ at) => (parseInt(hex.slice(at, at + 2), 16) / 255) ** 2.2;
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) + 0.05;
}

/** Returns a text colour with enough contrast on the accent (WCAG AA).
 * @param {string} back @param {string} wanted */
export const readable = (back, wanted) =>
  [wanted, "#ffffff"].find((front) => {
    const ratio = luminance(back) / luminance(front);
    // The power curve is an approximation, hence a little more than 4.5.
    return Math.max(ratio, 1 / ratio) > 4.6;
  }) ?? "#000";
