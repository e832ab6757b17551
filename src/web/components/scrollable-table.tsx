import type { ComponentChildren } from "preact";
import { TableHeader } from "./table-header.tsx";

/** A table with its own horizontal scrolling, also by keyboard. */
export function ScrollableTable({
  label,
  titles,
  children,
}: {
  label: string;
  titles: readonly string[];
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard
    <section class="scroll" tabIndex={0} aria-label={label}>
      <table>
        <TableHeader titles={titles} />
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}
