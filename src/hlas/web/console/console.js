/** @type {Record<string, Intl.DateTimeFormatOptions>} */
const forms = {
  full: { dateStyle: "medium", timeStyle: "short" },
  clock: { timeStyle: "short" },
};

/** Shows a time in the reader's time zone. @param {HTMLTimeElement} time */
function localise(time) {
  const at = new Date(time.dateTime);
  time.textContent = at.toLocaleString(navigator.language, forms[time.dataset.form ?? "full"]);
  time.title = time.dateTime;
}

for (const time of document.querySelectorAll("time")) localise(time);

// On longer ranges the axis shows days instead of hours.
for (const axis of document.querySelectorAll(".axis")) {
  const times = [...axis.querySelectorAll("time")];
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

let day = "";

/** Inserts a line with the date above the first message of a day. @param {Element} row */
function date(row) {
  const at = new Date(row.querySelector("time")?.dateTime ?? "");
  const next = at.toLocaleDateString(navigator.language, { dateStyle: "full" });
  if (next !== day) {
    const line = document.createElement("li");
    line.className = "day";
    line.textContent = day = next;
    row.before(line);
  }
}

for (const row of document.querySelectorAll("#log .row")) date(row);

/** Polls for new messages and adds them to the transcript. @param {HTMLElement} log */
function follow(log) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById("message"));
  const names = { user: "Visitor", assistant: "Assistant", operator: "Operator" };
  let after = Number(log.dataset.after);
  let pause = 2000;

  /** Sets text content only, so that nothing a visitor wrote is run as script.
   * @param {{seq: number, role: string, content: string, created_at: string}} message */
  function add({ seq, role, content, created_at }) {
    const row = /** @type {HTMLElement} */ (
      /** @type {DocumentFragment} */ (template.content.cloneNode(true)).firstElementChild
    );
    const known = role in names;
    row.className = `row ${known ? role : "system"}`;
    const [from, bubble] = /** @type {any} */ (row.children);
    from.textContent = names[/** @type {"user"} */ (role)] ?? "System";
    bubble.textContent = content;
    const time = document.createElement("time");
    time.dateTime = created_at;
    time.dataset.form = "clock";
    localise(time);
    row.append(time);
    log.firstElementChild?.append(row);
    date(row);
    after = seq;
  }

  async function look() {
    if (!document.hidden) {
      try {
        const response = await fetch(`${log.dataset.follow}?after=${after}`);
        // Signed out in the meantime: reloading redirects to the sign-in page.
        if (response.redirected) return location.reload();
        if (!response.ok) throw response.status;
        const { messages } = await response.json();
        const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
        for (const message of messages) add(message);
        if (messages.length) document.getElementById("empty")?.remove();
        if (messages.length && atEnd) log.scrollTop = log.scrollHeight;
        pause = messages.length ? 1500 : Math.min(pause * 1.2, 8000);
      } catch {
        pause = 15000;
      }
    }
    setTimeout(look, pause);
  }

  for (const sign of document.querySelectorAll(".live")) /** @type {HTMLElement} */ (sign).hidden = false;
  log.scrollTop = log.scrollHeight;
  setTimeout(look, pause);
}

const log = document.getElementById("log");
if (log?.dataset.follow) follow(log);

/** Shows every change of the form in the preview frame. @param {HTMLFormElement} form */
function preview(form) {
  const frame = /** @type {HTMLIFrameElement} */ (document.getElementById("preview"));
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;

  function show() {
    /** @type {Record<string, string>} */
    const looks = {};
    for (const [name, value] of new FormData(form)) {
      if (!/^(form_token|revision)$/.test(name) && `${value}`.trim()) looks[name] = `${value}`.trim();
    }
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
  addEventListener("message", (event) => {
    if (event.source === frame.contentWindow && event.data === "ready") show();
  });
  // The frame may have been ready before this script.
  show();
}

const looks = document.getElementById("looks");
if (looks instanceof HTMLFormElement) preview(looks);
