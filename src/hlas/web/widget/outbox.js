import { load, names, save } from "./storage.js";

/**
 * @typedef {object} Entry a message that is not acknowledged yet; it stays in storage until then
 * @property {string} key
 * @property {string} text
 * @property {number} at
 * @property {Record<string, string>} [extra] metadata besides the reference
 * @property {number} [tries]
 * @property {number} [next]
 * @property {boolean} [failed]
 */

/** The part of a key that history returns, so that a lost response never shows a message twice.
 * @param {string} key */
export const reference = (key) => key.slice(0, 12);

/** @returns {Entry[]} */
export const outbox = () =>
  names("out:")
    .map(load)
    .filter(Boolean)
    .sort((a, b) => a.at - b.at);

/** @param {Entry} entry */
export const keep = (entry) => save("out:" + entry.key, entry);
