import type { ComponentChildren } from "preact";
import { ColumnHeads } from "./table-header.tsx";

/** A table that may be wider than the page: it scrolls by itself, with the keyboard too. */
export function ScrolledTable({
  label,
  titles,
  children,
}: {
  label: string;
  titles: readonly string[];
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reachable by the keyboard
    <section class="scroll" tabIndex={0} aria-label={label}>
      <table>
        <ColumnHeads titles={titles} />
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}
