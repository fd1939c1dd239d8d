// node read_stream.mjs PACKAGES URL CONVERSATION TOKEN
// Reads a conversation's stream with the `ai` package as it is published, and prints each chunk as
// a line of JSON; then the message that the package makes of them. Stops after an answer is stored.
import { createRequire } from "node:module";

const [packages, url, conversation, token] = process.argv.slice(2);
const { DefaultChatTransport, readUIMessageStream } = createRequire(`${packages}/`)("ai");
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const controller = new AbortController();
let isDone = false;

const transport = new DefaultChatTransport({
  api: `${url}/widget/conversations`,
  headers: { Authorization: `Bearer ${token}` },
});
const stream = await transport.reconnectToStream({
  chatId: conversation,
  abortSignal: controller.signal,
});
const [chunks, parts] = stream.tee();

const print_chunks = async () => {
  for await (const chunk of chunks) {
    print({ chunk });
    if (chunk.type === "data-message" && chunk.data.role === "assistant") {
      isDone = true;
      break;
    }
  }
};

const print_message = async () => {
  let last;
  const onError = (error) => isDone || print({ error: String(error) });
  for await (const message of readUIMessageStream({ stream: parts, onError })) {
    last = message;
    const { type, data } = message.parts.at(-1) ?? {};
    if (type === "data-message" && data.role === "assistant") {
      break;
    }
  }
  print({ message: last });
};

try {
  await Promise.all([print_chunks(), print_message()]);
} catch (error) {
  print({ error: String(error) });
}
controller.abort();
process.exit(0);
