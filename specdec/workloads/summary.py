"""Short passages to summarise, written for this."""

PASSAGES = [
    """
    Lighthouses were once lit by open fires of wood or coal on a hill, and a ship's crew could never be sure whether the glow on the
    shore was a beacon, a village or a trap. Oil lamps behind glass made the light steady, but most of it was lost: it went up into the
    sky, down onto the rocks and back over the land. In 1822 the French engineer Augustin Fresnel built a lens out of many rings of
    glass, each cut like a slice of a much thicker lens. The rings bent almost all of the light into one flat beam that could be seen
    more than thirty kilometres away, with no more oil than before. Within fifty years his lenses stood in towers on every continent.
    To tell one tower from another, keepers turned the lens with a clockwork, so that each light flashed in a rhythm of its own, and
    sailors carried a book in which the rhythms were printed. Electric bulbs, automatic switches and at last satellite navigation
    made the keepers unnecessary, and most towers have stood empty since the 1990s. The lenses remain. Many weigh several tonnes and are
    shown in museums, where visitors are surprised that so large a thing could be so exact.
    """,
    """
    The town council of Harrow Bridge voted on Tuesday to close the old market hall for eighteen months while its roof is replaced.
    An inspection in March had found that eleven of the fourteen iron trusses were badly rusted, and that snow of the kind that fell two
    winters ago could bring part of the ceiling down. The repair will cost 4.2 million, of which the county pays a third. The
    forty-three stallholders will move to the car park behind the library, where the council is going to put up heated tents. They will
    pay half the usual rent for as long as the work lasts. Several of them said at the meeting that this was not enough. "People come
    to the hall because it is dry and because their grandparents came here," said Maria Okafor, who has sold cheese there for
    twenty-two years. "Nobody crosses a wet car park in January for cheese." The mayor answered that a bus would stop beside the tents
    every ten minutes on market days, free of charge. Work begins in September. The council promised to publish a report on costs
    and delays every three months, after the swimming pool was finished two years late.
    """,
    """
    Honeybees keep the middle of their nest at about thirty-five degrees, in summer and in winter, although a single bee cannot hold
    its own temperature at all. In the cold they form a ball around the queen. The bees inside shiver: they unhook their wings from
    the flight muscles and let the muscles work against each other, which warms the ball without moving it. Those at the outside
    stand still, with their heads inwards, and serve as a coat; every few minutes they change places with bees from the middle. In the
    heat the colony does the opposite. Workers spread drops of water over the combs, and others stand in rows at the entrance and
    beat their wings, so that air streams through the nest and the water evaporates. How does each bee know what to do? Experiments
    suggest that bees differ in the temperature at which they begin to fan. If all began at the same degree, the whole colony would start
    and stop at once, and the nest would swing between too hot and too cold. Because every colony has many fathers, its workers are
    different enough for the response to grow smoothly with the need.
    """,
    """
    Our team tested whether short walks help office workers to concentrate. We asked 212 people in four companies to take part for
    six weeks. Half of them, chosen by lot, walked outside for fifteen minutes after lunch; the other half kept to their usual break. Every
    afternoon at three all of them did a computer task in which they had to respond to rare signals for ten minutes. Walkers missed
    9 per cent fewer signals than the others. The difference appeared in the second week and did not grow after that. It was largest in
    people who said that they had slept badly, and absent in people who already walked to work. Mood, which we asked for every
    Friday, improved a little in both groups, so that we cannot say that the walks were the cause. There are limits to what we found. The
    companies all had a park nearby, and a walk along a busy road may do less. Those who took part knew which group they were in. And
    forty people left the study before the end, more of them walkers, most often because it rained. We think that a larger trial in
    towns without parks should come next.
    """,
    """
    Before mechanical refrigeration, ice was a crop. In January, when the ponds of New England were frozen to the depth of a man's arm,
    teams with horses cut a grid into the surface, as one scores a tray of caramel, and broke off blocks of a hundred and fifty
    kilograms. The blocks floated down a channel of open water to an ice house on the bank. Its double walls were filled with sawdust,
    and so little melted that ice from January could be sold in September. Frederic Tudor of Boston was the first to send it to hot
    countries. His first cargo, to Martinique in 1806, was a failure: there was no house to store it in, and the buyers did not know
    what to do with it. He built ice houses, gave bartenders free ice until their customers would not drink without it, and learned to
    pack blocks so tightly that two thirds of a cargo survived the four months to Calcutta. By 1856 ice from Boston went to
    forty-three countries. The trade ended as quickly as it had grown, when machines began to make ice where it was needed, cleaner
    and in any season.
    """,
    """
    Dear residents, as you know, the lift in staircase B stopped eleven times last year, and twice somebody was shut in for more than an
    hour. The company that services it told us in November that the control unit is from 1987 and that parts for it are no longer
    made. We have asked three firms for an offer. The cheapest would replace the control unit alone, for 18,000, in two weeks, with a
    guarantee of two years. The second would replace the motor as well, for 41,000, in six weeks; the lift would then use about
    a third less electricity, and the guarantee is ten years. The third offer, for a new lift, was 96,000, and we do not recommend it. The
    reserve fund holds 52,000, and the painting of the facade, planned for next year, will need 25,000 of that. If we choose the second
    offer, the painting has to wait for a year, or each flat pays 350 once. We also have to think of Mrs Lindqvist and the Baker family on
    the fifth floor, who cannot use the stairs: during the work the association would pay for a hotel or for helpers. Please vote
    by the twentieth, with the form in your letter box.
    """,
]
