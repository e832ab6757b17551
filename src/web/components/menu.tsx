import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** A button that opens a list of actions. The arrow keys move in it; Escape and a click elsewhere close it. */
export function Menu({
  label,
  title,
  isFramed = false,
  children,
  items,
}: {
  /** Accessible name of the button. */
  label: string;
  /** Heading of the list. */
  title?: ComponentChildren;
  /** Whether the button has a frame, like other buttons with text. */
  isFramed?: boolean;
  /** Content of the button. */
  children: ComponentChildren;
  items: readonly MenuItem[];
}) {
  const [isOpen, setOpen] = useState(false);
  const [isStartAligned, setStartAligned] = useState(false);
  const list = useRef<HTMLDivElement>(null);
  // A list that is aligned to the end of a button at the left edge would leave the page.
  useLayoutEffect(() => setStartAligned(isOpen && (list.current?.getBoundingClientRect().left ?? 0) < 0), [isOpen]);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const entries = () => [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  // Before the menu is painted: a key that the user presses then must reach it.
  useLayoutEffect(() => {
    if (!isOpen) return;
    entries()[0]?.focus();
    const onPointerDown = (event: PointerEvent) => {
      if (event.target instanceof Node && !root.current?.contains(event.target)) setOpen(false);
    };
    document.addEventListener("pointerdown", onPointerDown);
    return () => document.removeEventListener("pointerdown", onPointerDown);
  }, [isOpen]);
  const onKeyDown = (event: KeyboardEvent) => {
    const all = entries();
    const at = document.activeElement instanceof HTMLElement ? all.indexOf(document.activeElement) : -1;
    const target = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (event.key === "Escape") close();
    else if (event.key === "Tab") setOpen(false);
    else if (target !== undefined) {
      event.preventDefault();
      all.at(target % all.length)?.focus();
    }
  };
  return (
    <div class="menu" ref={root}>
      <button
        ref={button}
        type="button"
        class={isFramed ? undefined : "plain"}
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        {children}
      </button>
      {isOpen && (
        <div
          ref={list}
          role="menu"
          class={isStartAligned ? "start-aligned" : undefined}
          aria-label={label}
          onKeyDown={onKeyDown}
          tabIndex={-1}
        >
          {title !== undefined && (
            <div class="menu-title" role="presentation">
              {title}
            </div>
          )}
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              class={item.isDanger ? "danger" : undefined}
              disabled={item.disabledReason !== undefined}
              title={item.disabledReason ?? item.detail}
              onClick={() => {
                close();
                item.onSelect();
              }}
            >
              {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** One action of a menu. */
export interface MenuItem {
  label: string;
  /** Tooltip. */
  detail?: string | undefined;
  isDanger?: boolean;
  /** Disables the action and becomes its tooltip. */
  disabledReason?: string | undefined;
  onSelect: () => void;
}
