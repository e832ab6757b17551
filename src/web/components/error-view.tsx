/** What a page shows in place of what was refused. */
export function Refusal({ title, reason }: { title: string; reason: string }) {
  return (
    <>
      <h1>{title}</h1>
      <p class="notice" role="alert">
        {reason}
      </p>
    </>
  );
}
