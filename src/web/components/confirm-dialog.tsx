import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

/** One answer of a confirmation. */
export interface DialogAction {
  label: string;
  tone: "primary" | "danger" | "normal";
  /** Disables the action and becomes its tooltip. */
  disabledReason?: string | undefined;
  onSelect: () => void;
}

/** Asks before an action. `onClose` runs after every answer, and if the user cancels. */
export function ConfirmDialog({
  title,
  children,
  actions,
  onClose,
}: {
  title: string;
  /** Consequences of the action. */
  children: ComponentChildren;
  actions: readonly DialogAction[];
  onClose: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  // A layout effect runs before the next event, so that Escape directly after the click closes the dialog.
  useLayoutEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby={titleId} onClose={onClose}>
      <div class="consequences">
        <h2 id={titleId}>{title}</h2>
        {children}
      </div>
      <div class="actions">
        <button type="button" onClick={() => dialog.current?.close()}>
          Cancel
        </button>
        {actions.map(({ label, tone, disabledReason, onSelect }) => (
          <button
            key={label}
            type="button"
            class={tone === "normal" ? undefined : tone}
            disabled={disabledReason !== undefined}
            title={disabledReason}
            onClick={() => {
              onSelect();
              dialog.current?.close();
            }}
          >
            {label}
          </button>
        ))}
      </div>
    </dialog>
  );
}
