import { localise } from "./times.js";

for (const time of document.querySelectorAll("time")) localise(time);

// On longer ranges the axis shows days instead of hours.
for (const axis of document.querySelectorAll(".axis")) {
  const times = [...axis.querySelectorAll("time")].filter((time) => time.dataset.form === "clock");
  const [first, last] = [times[0], times.at(-1)].map((time) => Date.parse(time?.dateTime ?? ""));
  if (Number(last) - Number(first) > 36e5 * 36) {
    for (const time of times) {
      const at = new Date(time.dateTime);
      time.textContent = at.toLocaleDateString(navigator.language, { weekday: "short", day: "numeric" });
    }
  }
}

for (const form of document.querySelectorAll("form")) {
  const { confirm: question, submit } = form.dataset;
  if (question) {
    form.addEventListener("submit", (event) => {
      if (!confirm(question)) event.preventDefault();
    });
  }
  if (submit !== undefined) form.addEventListener("change", () => form.requestSubmit());
}

/** @type {NodeListOf<HTMLButtonElement>} */
const copiers = document.querySelectorAll("[data-copy]");
for (const button of copiers) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(`${button.dataset.copy}`)?.textContent ?? "");
    button.textContent = "Copied";
  });
}

/** @type {NodeListOf<HTMLTextAreaElement>} */
const counted = document.querySelectorAll("[data-count]");
for (const field of counted) {
  const shown = document.getElementById(`${field.dataset.count}`);
  const rest = shown?.textContent ?? "";
  const count = () => {
    if (shown) shown.textContent = `${[...field.value].length} of ${field.maxLength} characters. ${rest}`;
  };
  field.addEventListener("input", count);
  count();
}

/** Shows every change of the form in the preview frame. @param {HTMLFormElement} form */
function preview(form) {
  const frame = /** @type {HTMLIFrameElement} */ (document.getElementById("preview"));
  const page = /** @type {HTMLSelectElement} */ (document.getElementById("page-language"));
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;

  function show() {
    /** @type {Record<string, string>} */
    const looks = {};
    const { value: language } = page;
    // The texts of a language come last, and take the place of the others.
    for (const [name, value] of new FormData(form)) {
      const own = name.replace(`texts.${language}.`, "");
      if (!/^(form_token|revision|texts\..*)$/.test(own) && `${value}`.trim()) looks[own] = `${value}`.trim();
    }
    looks.language ??= language;
    // The frame has an opaque origin, so "*" is needed; the looks are not secret.
    frame.contentWindow?.postMessage(looks, "*");
  }

  /** @type {NodeListOf<HTMLInputElement>} */
  const pickers = form.querySelectorAll("[data-for]");
  for (const picker of pickers) {
    const field = /** @type {HTMLInputElement} */ (form.elements.namedItem(`${picker.dataset.for}`));
    picker.addEventListener("input", () => {
      field.value = picker.value;
    });
    field.addEventListener("input", () => {
      if (/^#[\da-f]{6}$/i.test(field.value)) picker.value = field.value;
    });
  }
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(show, 250);
  });
  page.addEventListener("change", show);
  addEventListener("message", (event) => {
    if (event.source === frame.contentWindow && event.data === "ready") show();
  });
  // The frame may have been ready before this script.
  show();
}

const looks = document.getElementById("looks");
if (looks instanceof HTMLFormElement) preview(looks);
