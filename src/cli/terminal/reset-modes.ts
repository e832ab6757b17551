/** Modes of the alternate screen. */
const ALTERNATE_SCREEN = new Set(["47", "1047", "1049"]);
/** Maximum length of a sequence that sets modes, for a sequence that two chunks share. */
const MAX_SEQUENCE_LENGTH = 64;

/** Follows output to know whether the terminal shows the alternate screen. */
export class AlternateScreenState {
  #rest = "";
  #isActive = false;

  get isActive(): boolean {
    return this.#isActive;
  }

  push(output: Uint8Array): void {
    const text = this.#rest + Buffer.from(output.buffer, output.byteOffset, output.byteLength).toString("latin1");
    for (const [sequence, modes = "", action] of text.matchAll(/\x1bc|\x1b\[\?([\d;]+)([hl])/g)) {
      if (sequence === "\x1bc") this.#isActive = false;
      else if (modes.split(";").some((mode) => ALTERNATE_SCREEN.has(mode))) this.#isActive = action === "h";
    }
    this.#rest = text.slice(-MAX_SEQUENCE_LENGTH);
  }
}

/**
 * Returns output that resets a terminal after a program, and erases no content: normal screen, default modes, whole scroll
 * region, no colors. The cursor stays in place on the normal screen. From the alternate screen it returns to its place
 * on the normal screen.
 */
export function resetModes({ isAlternate }: { isAlternate: boolean }): string {
  return [
    // Ends an incomplete sequence and a synchronized update.
    ...["\x18", "\x1b[?2026l"],
    // Only 1049 restores the cursor. On the normal screen, it would move the cursor to an earlier place.
    isAlternate ? "\x1b[?1049l" : "\x1b[?1047l",
    // Key protocols of kitty and xterm.
    ...["\x1b[<9u", "\x1b[>4m"],
    ...[1, 9, 45, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004].map((mode) => `\x1b[?${mode}l`),
    ...["\x1b[?7h", "\x1b[?25h", "\x1b[0 q", "\x1b[4l", "\x1b>", "\x1b(B\x1b)B\x0f", "\x1b]8;;\x1b\\"],
    // A new scroll region moves the cursor.
    ...["\x1b7", "\x1b[r", "\x1b8"],
    "\x1b[0m",
  ].join("");
}
