/** The head of a table: one column each. A table that draws only some of its rows numbers this one as the first. */
export function TableHeader({ titles, rowIndex }: { titles: readonly string[]; rowIndex?: number }) {
  return (
    <thead>
      <tr aria-rowindex={rowIndex}>
        {titles.map((title) => (
          <th key={title} scope="col">
            {title}
          </th>
        ))}
      </tr>
    </thead>
  );
}
