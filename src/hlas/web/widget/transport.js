import { keepFor, load, save } from "./storage.js";

/**
 * @typedef {{conversation_id: string, token: string, expires_in: number, ui_config: any, until: number}} Session
 * @typedef {{status?: number, code?: string, after: number}} Refusal thrown by a failed call
 */

let base = "";
/** @type {string | undefined} */
let identity;
/** Number of visitor changes: a request started for one visitor is not finished for another. */
let changes = 0;

/** @param {string} address */
export const setBase = (address) => {
  base = address.replace(/\/+$/, "");
};

/** @param {string} [token] the visitor's identity token, signed by the page's server
 * @returns {boolean} whether this is another visitor than before */
export function setIdentity(token) {
  const other = keepFor((identity = token));
  if (other) changes++;
  return other;
}

/** @param {number} time */
export const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

/** crypto.randomUUID is not available on plain http pages; this is. */
export const newKey = () => crypto.getRandomValues(new Uint8Array(16)).join("");

/** @type {Record<string, Promise<any>>} */
const queues = {};

/** Runs one at a time over all tabs, or within this tab if the browser has no locks.
 * @param {string} name @param {() => Promise<any>} work @returns {Promise<any>} */
export const lock = (name, work) =>
  navigator.locks?.request("hlas:" + name, work) ??
  (queues[name] = Promise.resolve(queues[name]).then(work, work));

/** @returns {Session | undefined} */
export const session = () => load("session");

/** True when a retry would be refused again: most 4xx, and a rejected identity. 409 means that an
 * earlier attempt is still in progress.
 * @param {Refusal} refusal */
export const isFinal = ({ status, code }) => /^4(?!01|08|09|25|29)|identity/.test(status + `${code}`);

/** Exponential back-off with jitter, at most an hour. A Retry-After that is not a number is
 * ignored.
 * @param {number} tries @param {Refusal} refusal */
export const backoff = (tries, { after }) =>
  Math.min(
    36e5,
    Math.max((after || 0) * 1000, Math.min(3e4, 500 * 2 ** tries) * (0.5 + Math.random() / 2)),
  );

/** A body makes it a POST, or a PUT where it replaces something. A stream, whose end is the caller's, is returned as a response.
 * @param {string} path @param {string} [token] @param {object} [body] @param {string} [key]
 * @param {AbortSignal} [stream] @returns {Promise<any>} */
async function request(path, token, body, key, stream) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = "Bearer " + token;
  if (key) headers["Idempotency-Key"] = key;
  /** @type {Refusal} */
  let refusal = { after: 0 };
  try {
    const response = await fetch(base + "/widget/" + path, {
      method: /(contact|rating)$/.test(path) ? "PUT" : body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      signal: stream ?? AbortSignal.timeout(15e3),
    });
    const { ok, status } = response;
    if (!ok) refusal = { status, after: Number(response.headers.get("Retry-After")) };
    if (ok && stream) return response;
    const answer = status === 204 || (await response.json());
    if (ok) return answer;
    refusal.code = answer.detail;
  } catch {
    // No response, or not one of ours: thrown below.
  }
  throw refusal;
}

/** @param {Session} [stale] the session that no longer works
 * @param {boolean} [ended] its conversation is over @returns {Promise<Session>} */
function renew(stale, ended) {
  const asked = Date.now();
  return lock("session", async () => {
    // Another tab had the lock: its new session needs a moment to reach our storage.
    if (Date.now() - asked > 9) await sleep(60);
    const current = session();
    const visitor = load("visitor") ?? newKey();
    const then = changes;
    if (current && current.token !== stale?.token) return current;
    let fresh;
    if (current && !ended) {
      try {
        fresh = await request("session/refresh", current.token, {});
      } catch (/** @type {any} */ refusal) {
        if (!/40[134]/.test(refusal.status)) throw refusal;
      }
    }
    fresh ??= await request("session", "", identity ? { identity } : { visitor_id: visitor });
    // Reset, or another visitor in the meantime: erased data must not come back.
    if (then !== changes || (current && !session())) throw { after: 0 };
    save("visitor", visitor);
    save("session", { ...fresh, until: Date.now() + fresh.expires_in * 900 });
    return fresh;
  });
}

/** Sends a request with the visitor's session, which is refreshed if needed. "*" in the path is
 * the conversation's.
 * @param {string} path @param {object} [body] @param {string} [key] @param {AbortSignal} [stream]
 * @returns {Promise<any>} */
export async function call(path, body, key, stream) {
  const then = changes;
  for (let tries = 0; ; tries++) {
    let current = session();
    if (!current || Date.now() > current.until) current = await renew(current);
    if (then !== changes) throw { after: 0 };
    try {
      return await request(path.replace("*", "conversations/" + current.conversation_id), current.token, body, key, stream);
    } catch (/** @type {any} */ refusal) {
      const ended = /^conv/.test(refusal.code);
      if (tries > 1 || (refusal.status !== 401 && !ended)) throw refusal;
      await renew(current, ended);
    }
  }
}
