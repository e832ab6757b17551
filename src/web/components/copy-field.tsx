import { useRef, useState } from "preact/hooks";

/** A link that the user passes on, with a button that copies it. */
export function CopyField({ label, text, isPrimary = false }: { label: string; text: string; isPrimary?: boolean }) {
  const input = useRef<HTMLInputElement>(null);
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    // The selection remains for the user if the browser denies the copy.
    input.current?.select();
    // Browsers offer the clipboard API only to pages of loopback and https; a phone may use neither.
    if (isSecureContext) await navigator.clipboard.writeText(text);
    setCopied(isSecureContext || document.execCommand("copy"));
  };
  return (
    <div class="copy-field">
      <label>
        {label}
        <input ref={input} readOnly value={text} onFocus={(event) => event.currentTarget.select()} />
      </label>
      <button
        type="button"
        class={isPrimary ? "primary" : undefined}
        onClick={() => void copy().catch(() => setCopied(false))}
      >
        {isCopied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}
