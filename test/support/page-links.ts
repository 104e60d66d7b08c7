/** Links of a page to files, resolved from the folder that the page is in. */
export function linksIn(page: string, markdown: string): string[] {
  const folder = page.split("/").slice(0, -1);
  return [...markdown.matchAll(/\]\((?!https?:|#)([^)#\s]+)[^)]*\)/g)].map(([, link]) => {
    const parts = [...folder];
    for (const part of (link as string).split("/")) {
      if (part === "..") parts.pop();
      else if (part !== ".") parts.push(part);
    }
    return parts.join("/");
  });
}
