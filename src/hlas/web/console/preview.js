// Runs the real widget without a server: no storage, no network, no locks; responses are faked here.
// Loaded before the widget, in a frame with another origin than the console.
(() => {
  const conversation = "00000000-0000-0000-0000-000000000000";
  /** @type {{id: string, seq: number, role: string, content: string, metadata: any, created_at: string}[]} */
  const messages = [];

  /** @param {string} role @param {string} content @param {any} metadata */
  function store(role, content, metadata) {
    const seq = messages.length + 1;
    const message = { id: `${seq}`, seq, role, content, metadata, created_at: new Date().toISOString() };
    messages.push(message);
    return { conversation_id: conversation, message_id: message.id };
  }

  /** @param {string} path @param {any} body */
  function answer(path, body) {
    if (path.includes("/widget/session")) {
      return { conversation_id: conversation, token: "preview", expires_in: 36000, ui_config: {} };
    }
    if (path.endsWith("/widget/messages")) {
      const stored = store("user", body.text, body.metadata);
      store("assistant", "This is how an **answer** looks.", { source: "agent" });
      return stored;
    }
    const after = Number(new URL(path).searchParams.get("after"));
    const paging = { has_more: false, next_after: messages.length };
    return { conversation_id: conversation, messages: messages.slice(after), paging };
  }

  window.fetch = async (address, options) => {
    // Without a stream the widget polls.
    if (`${address}`.includes("/stream")) return new Response("{}", { status: 404 });
    const body = options?.body ? JSON.parse(`${options.body}`) : {};
    return new Response(JSON.stringify(answer(`${address}`, body)));
  };
  Object.defineProperty(navigator, "locks", { value: undefined });

  // The widget must not take the focus from the form until somebody clicks in the frame.
  const { focus } = HTMLElement.prototype;
  HTMLElement.prototype.focus = function (/** @type {FocusOptions} */ options) {
    if (document.hasFocus()) focus.call(this, options);
  };
  HTMLDialogElement.prototype.showModal = function () {
    this.open = true;
  };

  /** Passes the looks to the widget as data- attributes. @param {Record<string, string>} looks */
  function dress(looks) {
    const widget = /** @type {any} */ (window.hlas);
    for (const name of widget.getAttributeNames()) {
      if (name.startsWith("data-") && name !== "data-open") widget.removeAttribute(name);
    }
    widget.removeAttribute("style");
    for (const [name, value] of Object.entries(looks)) {
      const shown = name === "suggestions" ? value.split("\n").filter((line) => line.trim()).join("|") : value;
      widget.setAttribute("data-" + name.replace("_", "-"), shown);
    }
    messages.length = 0;
    widget.reset();
    widget.open();
  }

  addEventListener("message", (event) => {
    if (event.source === parent && window.hlas) dress(event.data);
  });
  addEventListener("load", () => parent.postMessage("ready", "*"));
})();
