// What a reader sees of the page, for the struct seen.
(() => {
	const heading = document.querySelector("h1"), text = document.querySelector("p"), links = [...document.links];
	const style = [heading, text, ...links].map(element => getComputedStyle(element));
	const boxes = [], range = document.createRange();
	const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
	while (nodes.nextNode()) {
		for (let i = 0; i < nodes.currentNode.length; i++) {
			range.setStart(nodes.currentNode, i);
			range.setEnd(nodes.currentNode, i + 1);
			const box = range.getBoundingClientRect();
			if (box.width > 0) boxes.push(box);
		}
	}
	const lines = Object.values(Object.groupBy(boxes, box => Math.round(box.bottom)));
	const main = document.querySelector("main").getBoundingClientRect();
	return {
		Title: document.title,
		Heading: heading.innerText,
		Text: text.innerText,
		Background: getComputedStyle(document.body).backgroundColor,
		Colors: style.map(s => s.color),
		Links: links.map(link => link.href),
		FontSizes: style.map(s => parseFloat(s.fontSize)),
		LongestLine: Math.max(...lines.map(line => line.length)),
		Overflow: document.documentElement.scrollWidth > innerWidth,
		StartsRight: boxes.slice(0, text.innerText.search(/\s/)).some(box => box.right > main.right - 2),
	};
})()
