import { load, names, save } from "./storage.js";

/**
 * @typedef {{key: string, text: string, at: number, tries?: number, next?: number, failed?: boolean}} Entry
 *   a message that is not acknowledged yet; it stays in storage until then
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
