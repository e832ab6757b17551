/** Returns a submit handler of a form that calls `submit` instead of loading a page. */
export function handleSubmit(submit: () => void): (event: Event) => void {
  return (event) => {
    event.preventDefault();
    submit();
  };
}
