/** Header row of a table. The titles in `numbers` are right-aligned, like the numbers below them. */
export function TableHeader({ titles, numbers = [] }: { titles: readonly string[]; numbers?: readonly string[] }) {
  return (
    <thead>
      <tr>
        {titles.map((title) => (
          <th key={title} scope="col" class={numbers.includes(title) ? "number" : undefined}>
            {title}
          </th>
        ))}
      </tr>
    </thead>
  );
}
