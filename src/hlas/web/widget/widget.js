import { listen, restart, resume, send, show } from "./conversation.js";
import { load, save } from "./storage.js";
import { setBase, setIdentity } from "./transport.js";
import { dress, extend, form, isNarrow, mount, render, toggle } from "./view.js";

const address = import.meta.url;
const script = [...document.scripts].find((one) => one.src === address);

/** The element is also the page's API: `window.hlas`. */
class HlasChat extends HTMLElement {
  open() {
    toggle(true);
  }

  close() {
    toggle(false);
  }

  /** @param {string} text @returns {string | undefined} the message's key */
  send(text) {
    return send(`${text}`);
  }

  /** Removes the visitor's data, for shared computers. */
  reset() {
    // Changing to another visitor removes this one's data; changing back to none removes the other's.
    this.identify("-");
    this.identify();
  }

  /** Sets the visitor's identity; without a token the visitor has signed out. @param {string} [token] */
  identify(token = "") {
    this.dataset.identity = token;
    if (setIdentity(token)) {
      toggle(false);
      form.reset();
      restart();
    }
  }

  /** @param {string} name @param {any} [detail] */
  emit(name, detail) {
    this.dispatchEvent(new CustomEvent("hlas:" + name, { detail, bubbles: true }));
  }

  connectedCallback() {
    const { dataset } = this;
    for (const name in script?.dataset) dataset[name] ??= script.dataset[name];
    setBase(dataset.api ?? address.replace(/\/(widget\/\w+\/)?[^/]*$/, ""));
    setIdentity(dataset.identity);
    mount(this, this.shadowRoot ?? this.attachShadow({ mode: "open" }), (open) => {
      save("open", open || undefined);
      render();
      this.emit(open ? "open" : "close");
      show(open);
    });
    listen((event, detail) => {
      if (event === "change") render();
      else if (event === "text") extend(detail);
      else if (event === "session") dress();
      else this.emit(event, detail);
    });
    if (dataset.open === "true" || (load("open") && !isNarrow())) toggle(true, true);
    else resume();
    this.emit("ready");
  }
}

// A second copy of the script on the same page has no effect.
if (!customElements.get("hlas-chat")) {
  customElements.define("hlas-chat", HlasChat);
  window.hlas =
    document.querySelector("hlas-chat") ?? document.body.appendChild(new HlasChat());
}
