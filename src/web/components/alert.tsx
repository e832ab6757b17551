/** Error message of a page or a form; renders nothing for null. */
export function Alert({ message }: { message: string | null }) {
  return message === null ? null : (
    <p role="alert" class="alert">
      {message}
    </p>
  );
}
