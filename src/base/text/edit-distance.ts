/** Returns the number of letters to add, remove, change or swap with the next one (Damerau-Levenshtein). */
export function editDistance(from: string, to: string): number {
  const rows = [Array.from({ length: to.length + 1 }, (_, at) => at)];
  const at = (row: number, column: number) => rows[row]?.[column] ?? Number.POSITIVE_INFINITY;
  for (let row = 1; row <= from.length; row++) {
    rows.push([row]);
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1] ? 0 : 1;
      const isSwapped = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      rows[row]?.push(
        Math.min(
          at(row - 1, column) + 1,
          at(row, column - 1) + 1,
          at(row - 1, column - 1) + same,
          isSwapped ? at(row - 2, column - 2) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
  }
  return at(from.length, to.length);
}
