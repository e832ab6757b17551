import { useEffect, useState } from "preact/hooks";

/** Where the page is, kept in the address's fragment so that it survives a reload and can be sent to somebody. */
export type Route = { page: "processes" } | { page: "process"; handle: string } | { page: "server" };

export function parseRoute(fragment: string): Route {
  const [, first = "", second = ""] = fragment.replace(/^#/, "").split("/");
  if (first === "process" && /^[a-z2-7]{12}$/.test(second)) return { page: "process", handle: second };
  if (first === "server") return { page: "server" };
  return { page: "processes" };
}

export function hrefOf(route: Route): string {
  switch (route.page) {
    case "processes":
      return "#/processes";
    case "process":
      return `#/process/${route.handle}`;
    case "server":
      return "#/server";
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const look = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return route;
}
