import type { ComponentChildren } from "preact";

/** Header row of a table. The titles in `numbers` are right-aligned, like the numbers below them. */
export function TableHeader({ titles, numbers = [] }: { titles: readonly string[]; numbers?: readonly string[] }) {
  return (
    <thead>
      <tr>
        {titles.map((title) => (
          <ColumnTitle key={title} class={numbers.includes(title) ? "number" : undefined}>
            {title}
          </ColumnTitle>
        ))}
      </tr>
    </thead>
  );
}

/** Title of a table column. */
export function ColumnTitle(props: { class?: string | undefined; children: ComponentChildren }) {
  return <th scope="col" {...props} />;
}
