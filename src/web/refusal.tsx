/** What a page shows in place of what was refused. */
export function Refusal({ reason }: { reason: string }) {
  return (
    <p class="notice" role="alert">
      {reason}
    </p>
  );
}
