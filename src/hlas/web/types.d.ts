declare module "*.css" {
  const text: string;
  export default text;
}

/** One message in the widget. */
interface Item {
  role: string;
  text: string;
  at: number;
  /** Which conversation of this page it belongs to. */
  part: number;
  id?: string;
  key?: string;
  seq?: number;
  state?: "sending" | "waiting" | "failed";
  /** The message's id while its text is growing. */
  live?: string | undefined;
  meta?: any;
  /** How much of a text that grew is announced. */
  said?: string;
  /** The text in the node. */
  shown?: string | undefined;
  node?: any;
  /** The node with the visitor's choices. */
  ask?: any;
  /** The form that asks for the contact, or thanks for it. */
  card?: any;
  /** The visitor has said how to be reached; undefined where no person is wanted. */
  done?: boolean | undefined;
  /** The buttons to rate it. */
  thumbs?: any;
  /** The form that asks what is wrong with it, or thanks for that. */
  why?: any;
}

interface Window {
  hlas: HTMLElement;
}
