import type { ScrollKey } from "./attached-screen.ts";

/** Name and byte of the key with which a viewer becomes the driver. */
export const TAKEOVER_KEY = { name: "ctrl-t", byte: 0x14 };

/** Meaning of a key that a viewer pressed. */
export type ViewerKey =
  | { type: "takeOver" }
  | { type: "scroll"; key: ScrollKey }
  /** Input that only a driver can send. */
  | { type: "input" };

const SCROLL_KEYS: Readonly<Record<string, ScrollKey>> = {
  A: "up",
  B: "down",
  C: "right",
  D: "left",
  H: "home",
  F: "end",
  "5~": "pageUp",
  "6~": "pageDown",
  "1~": "home",
  "4~": "end",
};

/** Mouse and focus reports of a terminal in the modes of the program. Not typed by the user. */
const REPORTS = /\x1b\[(?:<[\d;]*[Mm]|M[\s\S]{3}|[IO])/g;

/** Splits typed bytes into keys. */
export function parseViewerKeys(bytes: Uint8Array): ViewerKey[] {
  const text = Buffer.from(bytes).toString("latin1").replaceAll(REPORTS, "");
  const keys: ViewerKey[] = [];
  for (const [word] of text.matchAll(/\x1b[[O](?:[A-DHF]|[1456]~)|[\s\S]/g)) {
    const key = word.length > 1 ? SCROLL_KEYS[word.slice(2)] : undefined;
    if (key) keys.push({ type: "scroll", key });
    else if (word.charCodeAt(0) === TAKEOVER_KEY.byte) keys.push({ type: "takeOver" });
    else if (keys.at(-1)?.type !== "input") keys.push({ type: "input" });
  }
  return keys;
}
