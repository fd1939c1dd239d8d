import { backoff, call, isFinal, lock } from "./transport.js";

/**
 * @typedef {{id: string, seq?: number, role: string, content: string, metadata?: any, created_at?: string}} Row
 *
 * @typedef {object} Frame one event of a stream
 * @property {string} type
 * @property {string} [messageId]
 * @property {string} [delta]
 * @property {any} [data]
 * @property {string} [toolCallId]
 * @property {string} [toolName]
 *
 * @typedef {object} Live what a stream says besides messages; one tab reads it and tells the others
 * @property {number} until while it is heard there is no need to poll
 * @property {string} [handler]
 * @property {number} [typing] until when an operator is shown as typing
 * @property {Run} [run] the answer in progress
 *
 * @typedef {object} Run
 * @property {string} id
 * @property {string} text
 * @property {number} at
 * @property {boolean} [done]
 * @property {Record<string, string | undefined>} [tools] names of those at work, by call
 */

/** @type {AbortController | undefined} */
let connection;
/** Ends the pause before the next attempt. @type {(value?: any) => void} */
let hurry = () => {};
let following = false;

/** Ends the stream and any pause; a stream that is still wanted is opened again at once. */
export function reconnect() {
  connection?.abort();
  hurry();
}

/** @param {string} block @returns {Frame[]} nothing for a comment */
const parse = (block) =>
  block
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => JSON.parse(line.slice(5)));

/** @param {Live} live what was heard before @param {Frame[]} frames */
export function digest(live, frames) {
  const at = Date.now();
  /** @type {Row[]} */
  const rows = [];
  const heard = { ...live, until: at + 2e4 };
  for (const { type, messageId = "", delta, data, toolCallId = "", toolName } of frames) {
    const { run } = heard;
    if (type === "data-message") rows.push(data);
    if (type === "data-state") heard.handler = data.handler;
    if (type === "data-typing" && data.who === "operator") heard.typing = at + 6e3;
    if (type === "start") heard.run = { id: messageId, text: "", at };
    if (type === "text-delta" && run) heard.run = { ...run, text: run.text + delta, at };
    if (type === "data-reset") delete heard.run;
    // Only the frame that starts a tool names it, so the one that ends it removes the name.
    if (/^tool/.test(type) && run) {
      heard.run = { ...run, at, tools: { ...run.tools, [toolCallId]: toolName } };
    }
  }
  return { heard, rows };
}

/** Reads one stream to its end.
 * @param {AbortController} control @param {number} after the last message that is known
 * @param {(conversation: string, frames: Frame[]) => void} hear
 * @returns {Promise<{lasted: number, after: number}>} how long it was heard, and for how many
 *   seconds no other should be opened */
async function read(control, after, hear) {
  let opened = 0;
  let wait = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const expect = (/** @type {number} */ time) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      // A proxy that holds everything back will do so again.
      if (!opened) wait = 60;
      control.abort();
    }, time);
  };
  expect(8e3);
  try {
    const path = "*/stream?after=" + after;
    const { body, url } = await call(path, undefined, undefined, control.signal);
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", part; !(part = await reader.read()).done; ) {
      // The server sends a comment every 15 seconds.
      expect(4e4);
      opened ||= Date.now();
      const blocks = (rest + part.value).split("\n\n");
      rest = `${blocks.pop()}`;
      hear(url.split("/").at(-2), blocks.flatMap(parse));
    }
  } catch (/** @type {any} */ refusal) {
    if (refusal.status) wait = isFinal(refusal) ? 300 : refusal.after;
  }
  clearTimeout(timer);
  return { lasted: opened && Date.now() - opened, after: wait };
}

/** Reads the conversation live, in one tab for all, for as long as it is wanted.
 * @param {() => boolean} wants @param {() => Promise<number>} position
 * @param {(conversation: string, frames: Frame[]) => void} hear @param {() => void} end */
export async function follow(wants, position, hear, end) {
  if (following || !wants()) return;
  following = true;
  await lock("stream", async () => {
    for (let tries = 0; wants(); ) {
      const after = await position();
      const control = (connection = new AbortController());
      const result = await read(control, after, hear);
      // Streams that are cut soon are opened less and less often.
      tries = result.lasted > 1e4 ? 1 : tries + 1;
      end();
      const { aborted } = control.signal;
      control.abort();
      if (wants() && (result.after || !aborted)) {
        await new Promise((resolve) => {
          hurry = resolve;
          setTimeout(resolve, backoff(tries, result));
        });
      }
    }
  });
  following = false;
}
