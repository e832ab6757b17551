import { useEffect } from "preact/hooks";

/** Sets the title of the browser tab while the page is shown, so that users find one of many tabs. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "procwire" : `${title} · procwire`;
  }, [title]);
}
