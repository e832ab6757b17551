/** What stands on a page in the place of what was refused. */
export function Refusal({ reason }: { reason: string }) {
  return (
    <p class="notice" role="alert">
      {reason}
    </p>
  );
}
