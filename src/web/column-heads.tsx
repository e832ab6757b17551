/** The head of a table: one column each. A table that draws some of its rows only says that this is the first of all. */
export function ColumnHeads({ titles, rowIndex }: { titles: readonly string[]; rowIndex?: number }) {
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
