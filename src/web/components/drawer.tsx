import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

/**
 * A panel at the side, over the page, which keeps its size and stays usable. Escape closes it. The focus moves into the
 * drawer when it opens, and back when it closes.
 */
export function Drawer({
  title,
  actions,
  children,
  onClose,
}: {
  title: ComponentChildren;
  /** Controls in the header, after the title. */
  actions?: ComponentChildren;
  children: ComponentChildren;
  onClose: () => void;
}) {
  const titleId = useId();
  const root = useRef<HTMLElement>(null);
  const close = useRef(onClose);
  close.current = onClose;
  // Before the drawer is painted: a key that the user presses then must reach it.
  useLayoutEffect(() => {
    const before = document.activeElement;
    root.current?.focus();
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented) close.current();
    };
    // A drawer without the focus does not take Escape from the terminal.
    root.current?.addEventListener("keydown", onKeyDown);
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <section class="drawer" ref={root} role="dialog" aria-labelledby={titleId} tabIndex={-1}>
      <header>
        <h2 id={titleId} class="clipped">
          {title}
        </h2>
        {actions}
        <button type="button" class="plain" aria-label="Close" onClick={onClose}>
          ✕
        </button>
      </header>
      <div class="content">{children}</div>
    </section>
  );
}
