/** Path to the current page: links to the pages above it, then the page itself, unless its heading follows. */
export function Breadcrumb({
  parents,
  current,
}: {
  parents: readonly { label: string; href: string }[];
  /** Default: the heading of the page follows. */
  current?: string;
}) {
  return (
    <nav class="breadcrumb" aria-label="Breadcrumb">
      {parents.map(({ label, href }) => (
        <span key={href}>
          <a href={href}>{label}</a>
        </span>
      ))}
      {current === undefined ? (
        <span aria-hidden="true" />
      ) : (
        <span class="clipped" aria-current="page">
          {current}
        </span>
      )}
    </nav>
  );
}
