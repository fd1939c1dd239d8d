// node send_message.mjs PACKAGES URL TEXT TOKEN
// Sends a message to /widget/agent/reply with the `ai` package as it is published, and prints each
// chunk of the answer as a line of JSON; then the message that the package makes of them.
import { createRequire } from "node:module";

const [packages, url, text, token] = process.argv.slice(2);
const { DefaultChatTransport, readUIMessageStream } = createRequire(`${packages}/`)("ai");
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

const transport = new DefaultChatTransport({
  api: `${url}/widget/agent/reply`,
  headers: { Authorization: `Bearer ${token}`, Accept: "text/event-stream" },
  prepareSendMessagesRequest: ({ messages }) => ({
    body: { text: messages.at(-1).parts.map((part) => part.text).join("") },
  }),
});
const stream = await transport.sendMessages({
  trigger: "submit-message",
  chatId: "chat",
  messages: [{ id: "1", role: "user", parts: [{ type: "text", text }] }],
});
const [chunks, parts] = stream.tee();
let last;
await Promise.all([
  (async () => {
    for await (const chunk of chunks) print({ chunk });
  })(),
  (async () => {
    const onError = (error) => print({ error: String(error) });
    for await (last of readUIMessageStream({ stream: parts, onError }));
  })(),
]);
print({ message: last });
