/** Keys that a phone's keyboard lacks. */
const EXTRA_KEYS = [
  ["Esc", "\x1b"],
  ["Tab", "\t"],
  ["Ctrl-C", "\x03"],
  ["Ctrl-D", "\x04"],
  ["←", "\x1b[D"],
  ["↓", "\x1b[B"],
  ["↑", "\x1b[A"],
  ["→", "\x1b[C"],
] as const;

/** Row of keys for phones. The focus stays in the terminal, so that the on-screen keyboard stays open. */
export function KeyBar({
  isCtrl,
  disabledReason,
  onCtrl,
  onKey,
}: {
  /** Whether the next key is typed with Ctrl. */
  isCtrl: boolean;
  disabledReason: string | undefined;
  onCtrl: () => void;
  onKey: (bytes: Uint8Array) => void;
}) {
  const key = (label: string, onClick: () => void, isPressed?: boolean) => (
    <button
      key={label}
      type="button"
      aria-pressed={isPressed}
      disabled={disabledReason !== undefined}
      title={disabledReason}
      onMouseDown={(event) => event.preventDefault()}
      onClick={onClick}
    >
      {label}
    </button>
  );
  return (
    // Without an enabled key, the bar itself must be reachable by keyboard, because it scrolls.
    <div class="keys" role="toolbar" aria-label="Keys" tabIndex={disabledReason === undefined ? undefined : 0}>
      {key("Ctrl", onCtrl, isCtrl)}
      {EXTRA_KEYS.map(([name, text]) => key(name, () => onKey(new TextEncoder().encode(text))))}
    </div>
  );
}

/** Returns the control character of a letter; other input stays unchanged. */
export function withCtrl(typed: Uint8Array): Uint8Array {
  const [key = 0] = typed;
  const isLetter = typed.length === 1 && key >= 0x40 && key < 0x7f;
  return isLetter ? Uint8Array.of(key & 0x1f) : typed;
}
