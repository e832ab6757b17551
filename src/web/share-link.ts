/** One process, and the token that shows it. */
export interface ShareLink {
  token: string;
  handle: string;
}

/** A tab that was opened by a link keeps it across a reload; other tabs and the history never have it. */
const KEPT = "procwire.share";
const LINK = /^#share=([\w.-]+)&process=([a-z2-7]{12})$/;

/** In the fragment, which is sent to no server and appears in no log. */
export function shareAddress({ token, handle }: ShareLink): string {
  return `${location.origin}/#share=${token}&process=${handle}`;
}

/** Takes the link out of the address, so that it is in no history entry and no screenshot; null: the tab has none. */
export function takeShareLink(): ShareLink | null {
  const [, token, handle] = LINK.exec(location.hash) ?? [];
  if (token !== undefined && handle !== undefined) {
    sessionStorage.setItem(KEPT, `#share=${token}&process=${handle}`);
    history.replaceState(null, "", `${location.pathname}#/process/${handle}`);
    return { token, handle };
  }
  const [, keptToken, keptHandle] = LINK.exec(sessionStorage.getItem(KEPT) ?? "") ?? [];
  // A person who signs in, or opens another page, no longer uses the link.
  if (keptToken === undefined || keptHandle === undefined || location.hash !== `#/process/${keptHandle}`) {
    sessionStorage.removeItem(KEPT);
    return null;
  }
  return { token: keptToken, handle: keptHandle };
}

/** The sub-protocols by which a page sends its token. */
export function tokenProtocols(token: string): string[] {
  const encoded = btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return ["procwire.v1", `procwire.token.${encoded}`];
}
