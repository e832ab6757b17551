import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

/** A collapsible section. Its content is mounted only while it is open. */
export function Panel({ title, children }: { title: string; children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {isOpen && children}
    </details>
  );
}
