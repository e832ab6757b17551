/** Header row of a table. `rowIndex` is its number in a table that renders only some of its rows. */
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
