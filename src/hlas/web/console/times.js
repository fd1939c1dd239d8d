/** @type {Record<string, Intl.DateTimeFormatOptions>} */
const forms = {
  full: { dateStyle: "medium", timeStyle: "short" },
  clock: { timeStyle: "short" },
  // Days of money are in UTC, wherever the reader is.
  day: { day: "numeric", month: "short", timeZone: "UTC" },
};

/** Shows a time in the reader's time zone. @param {HTMLTimeElement} time */
export function localise(time) {
  const at = new Date(time.dateTime);
  time.textContent = at.toLocaleString(navigator.language, forms[time.dataset.form ?? "full"]);
  time.title = time.dateTime;
}
