const RETRY_MS = 10_000;
// A connection that is replaced sooner is not worth a word.
const PATIENCE_MS = 4000;

/**
 * Keeps a stream open while the page is visible. Browsers open six connections to a server at most,
 * so that tabs in the background must not hold any.
 * @param {() => string} begin returns the address of a new stream, from where the page is
 * @param {string} type of the events
 * @param {(event: MessageEvent) => void} listener
 */
export function follow(begin, type, listener) {
  const sign = /** @type {HTMLElement} */ (document.querySelector(".live"));
  /** @type {EventSource | undefined} */
  let source;
  /** @type {ReturnType<typeof setTimeout>} */
  let retry;
  /** @type {ReturnType<typeof setTimeout>} */
  let patience;

  /** @param {boolean} isLive */
  function show(isLive) {
    sign.hidden = false;
    sign.classList.toggle("lost", !isLive);
    sign.textContent = isLive ? "live" : "not connected, trying again";
  }

  function connect() {
    clearTimeout(retry);
    source?.close();
    if (document.hidden) return;
    const opened = (source = new EventSource(begin()));
    opened.addEventListener(type, listener);
    opened.onopen = () => {
      clearTimeout(patience);
      show(true);
    };
    opened.onerror = () => {
      clearTimeout(patience);
      patience = setTimeout(show, PATIENCE_MS, false);
      // Otherwise the browser connects again by itself, from the last event that it has seen.
      if (opened.readyState === EventSource.CLOSED) renew();
    };
  }

  async function renew() {
    retry = setTimeout(connect, RETRY_MS);
    try {
      // Signed out in the meantime: reloading redirects to the sign-in page.
      if ((await fetch(location.href)).redirected) location.reload();
    } catch {
      // The server cannot be reached: the next attempt will tell.
    }
  }

  document.addEventListener("visibilitychange", connect);
  addEventListener("online", connect);
  connect();
}
