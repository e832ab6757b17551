/** Error message in place of content that failed to load. */
export function ErrorView({ title, reason }: { title: string; reason: string }) {
  return (
    <>
      <h1>{title}</h1>
      <p class="notice" role="alert">
        {reason}
      </p>
    </>
  );
}
